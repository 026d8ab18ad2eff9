"""JAX as a peer: saxpy, transpose, sum.

JAX gives no events: a sample is the host time of many chained runs, divided by their number, so that the time of the
launches disappears in that of the device.
"""

import time

import protocol

# Runs in a sample: enough for the host's part to vanish beside kernels of tenths of a millisecond.
RUNS = 20


def load():
    import jax
    import jax.numpy as jnp

    device = jax.devices()[0]
    if device.platform not in ("gpu", "cuda"):
        raise RuntimeError(f"JAX sees no GPU but '{device.platform}'")
    keys = iter(jax.random.split(jax.random.PRNGKey(0), 16))

    def sampler(operation, *inputs):
        compiled = jax.jit(operation)
        compiled(*inputs).block_until_ready()

        def sample():
            start = time.perf_counter_ns()
            for _ in range(RUNS):
                result = compiled(*inputs)
            result.block_until_ready()
            return (time.perf_counter_ns() - start) / RUNS

        for _ in range(3):
            sample()
        return lambda samples: [sample() for _ in range(samples)]

    def normal(*shape):
        return jax.random.normal(next(keys), shape, dtype=jnp.float32)

    def saxpy(shape):
        return sampler(lambda x, y: 1e-3 * x + y, normal(shape["n"]), normal(shape["n"]))

    def transpose(shape):
        # A bare transpose may become a change of layout that is never done: the copy makes it real.
        return sampler(lambda matrix: jnp.copy(matrix.T), normal(shape["rows"], shape["columns"]))

    def total(shape):
        return sampler(jnp.sum, normal(shape["n"]))

    operations = {"saxpy": saxpy, "transpose": transpose, "sum": total}
    return {"jax": jax.__version__}, device.device_kind, operations


if __name__ == "__main__":
    protocol.serve("JAX", load)
