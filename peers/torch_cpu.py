"""PyTorch on the CPU as a peer: attention in f32.

Shapes: batch, heads, key_heads, queries, keys, head_dim, causal (0 or 1). A sample is the host time of one run.
"""

import time

import protocol

# As the lab's own side has it.
WARM_UP_SECONDS = 0.05


def load():
    import torch

    torch.manual_seed(0)

    def attention_f32(shape):
        causal = bool(shape.get("causal", 0))
        protocol.require_shared_mask(shape)

        def heads(count, length):
            return torch.randn(shape["batch"], count, length, shape["head_dim"])

        key_heads = shape.get("key_heads", shape["heads"])
        q = heads(shape["heads"], shape["queries"])
        k, v = heads(key_heads, shape["keys"]), heads(key_heads, shape["keys"])
        grouped = key_heads != shape["heads"]

        def sample():
            start = time.perf_counter_ns()
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
            return float(time.perf_counter_ns() - start)

        def samples(count):
            # The other side has used the caches meanwhile, and threads wake up.
            awake = time.perf_counter()
            while time.perf_counter() - awake < WARM_UP_SECONDS:
                sample()
            return [sample() for _ in range(count)]

        samples(1)
        return samples

    device = f"CPU, {torch.get_num_threads()} threads"
    return {"torch": torch.__version__}, device, {"attention-f32-cpu": attention_f32}


if __name__ == "__main__":
    protocol.serve("PyTorch", load)
