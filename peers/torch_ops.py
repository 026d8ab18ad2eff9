"""PyTorch as a peer: copy, saxpy, transpose, sum, fp8 matmul."""

import protocol


def load():
    import torch
    import torch_timing

    torch_timing.require_gpu()
    torch.manual_seed(0)
    sampler = torch_timing.sampler

    def normal(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.float32)

    def copy(shape):
        source = normal(shape["n"])
        target = torch.empty_like(source)
        return sampler(lambda: target.copy_(source))

    def saxpy(shape):
        x, y = normal(shape["n"]), normal(shape["n"])
        # A small factor: y stays finite over any number of runs.
        return sampler(lambda: y.add_(x, alpha=1e-3))

    def transpose(shape):
        matrix = normal(shape["rows"], shape["columns"])
        return sampler(lambda: matrix.t().contiguous())

    def total(shape):
        x = torch.rand(shape["n"], device="cuda", dtype=torch.float32)
        return sampler(x.sum)

    def fp8_matmul(shape):
        m, n, k = shape["m"], shape["n"], shape["k"]
        a = (2 * torch.rand(m, k, device="cuda") - 1).to(torch.float8_e4m3fn)
        b = (2 * torch.rand(n, k, device="cuda") - 1).to(torch.float8_e4m3fn)
        one = torch.ones((), device="cuda", dtype=torch.float32)

        def product():
            # The second operand is column-major, as the hardware wants it.
            return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.float32)

        return sampler(product)

    operations = {
        "copy": copy,
        "saxpy": saxpy,
        "transpose": transpose,
        "sum": total,
        "fp8-matmul": fp8_matmul,
    }
    versions = {"torch": torch.__version__, "cuda": str(torch.version.cuda)}
    return versions, torch.cuda.get_device_name(), operations


if __name__ == "__main__":
    protocol.serve("PyTorch", load)
