"""PyTorch as a peer: copy, saxpy, transpose, sum, fp8 matmul, attention in f16."""

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

    def attention_f16(shape):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        protocol.require_shared_mask(shape)

        def heads(count, length):
            values = torch.randn(shape["batch"], count, length, shape["head_dim"], device="cuda")
            return values.to(torch.float16)

        key_heads = shape.get("key_heads", shape["heads"])
        q = heads(shape["heads"], shape["queries"])
        k, v = heads(key_heads, shape["keys"]), heads(key_heads, shape["keys"])
        causal, grouped = bool(shape.get("causal", 0)), key_heads != shape["heads"]

        def run(backend):
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=causal, enable_gqa=grouped
                )

        # Whichever of PyTorch's own is the fastest at this shape.
        best, least = None, None
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
            try:
                candidate = sampler(lambda backend=backend: run(backend))
                time = sorted(candidate(5))[2]
            except RuntimeError:
                continue
            if least is None or time < least:
                best, least = candidate, time
        if best is None:
            raise RuntimeError("no SDPA backend takes this shape")
        return best

    operations = {
        "attention-f16": attention_f16,
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
