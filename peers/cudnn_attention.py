"""cuDNN as a peer: scaled-dot-product attention in bf16 and fp8, through its own Python front end.

Shapes: batch, heads, key_heads, queries, keys, head_dim, causal (0 or 1).
"""

import math

import protocol


def load():
    import cudnn
    import torch
    import torch_timing

    torch_timing.require_gpu()
    torch.manual_seed(0)
    handle = cudnn.create_handle()

    def tensors(shape, dtype):
        protocol.require_shared_mask(shape)

        def random(heads, length):
            values = torch.randn(shape["batch"], heads, length, shape["head_dim"], device="cuda")
            return values.to(dtype)

        key_heads = shape.get("key_heads", shape["heads"])
        q = random(shape["heads"], shape["queries"])
        return q, random(key_heads, shape["keys"]), random(key_heads, shape["keys"])

    def attention_bf16(shape):
        q, k, v = tensors(shape, torch.bfloat16)
        out = torch.empty_like(q)
        graph = cudnn.pygraph(
            io_data_type=cudnn.data_type.BFLOAT16,
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=handle,
        )
        inputs = [graph.tensor_like(tensor) for tensor in (q, k, v)]
        result, _ = graph.sdpa(
            name="sdpa",
            q=inputs[0],
            k=inputs[1],
            v=inputs[2],
            is_inference=True,
            attn_scale=1.0 / math.sqrt(shape["head_dim"]),
            use_causal_mask=bool(shape.get("causal", 0)),
        )
        result.set_output(True).set_dim(out.size()).set_stride(out.stride())
        return sampler(graph, {inputs[0]: q, inputs[1]: k, inputs[2]: v, result: out})

    def attention_fp8(shape):
        q, k, v = tensors(shape, torch.float8_e4m3fn)
        out = torch.empty_like(q)
        graph = cudnn.pygraph(
            io_data_type=cudnn.data_type.FP8_E4M3,
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=handle,
        )
        inputs = [graph.tensor_like(tensor) for tensor in (q, k, v)]
        one = torch.ones(1, 1, 1, 1, device="cuda", dtype=torch.float32)
        names = ["descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o"]
        scales = {name: graph.tensor_like(one) for name in names}
        result, _, amax_s, amax_o = graph.sdpa_fp8(
            q=inputs[0],
            k=inputs[1],
            v=inputs[2],
            **scales,
            is_inference=True,
            attn_scale=1.0 / math.sqrt(shape["head_dim"]),
            use_causal_mask=bool(shape.get("causal", 0)),
        )
        result.set_output(True).set_dim(out.size()).set_stride(out.stride())
        pack = {inputs[0]: q, inputs[1]: k, inputs[2]: v, result: out}
        pack.update({scale: one for scale in scales.values()})
        for amax in (amax_s, amax_o):
            amax.set_output(True).set_dim(one.size()).set_stride(one.stride())
            amax.set_data_type(cudnn.data_type.FLOAT)
            pack[amax] = torch.empty_like(one)
        return sampler(graph, pack)

    def sampler(graph, pack):
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        workspace = torch.empty(max(graph.get_workspace_size(), 1), device="cuda", dtype=torch.uint8)

        def run():
            cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
            graph.execute(pack, workspace, handle=handle)

        return torch_timing.sampler(run)

    operations = {"attention-bf16": attention_bf16, "attention-fp8": attention_fp8}
    versions = {
        "cudnn": str(cudnn.backend_version()),
        "cudnn-frontend": cudnn.__version__,
        "torch": torch.__version__,
    }
    return versions, torch.cuda.get_device_name(), operations


if __name__ == "__main__":
    protocol.serve("cuDNN", load)
