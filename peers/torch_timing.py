"""Device times of PyTorch operations: CUDA events around a replayed CUDA graph."""

import torch

# Long enough for the host to queue a sample behind it, and more than any level-2 cache holds.
SHIELD_BYTES = 512 << 20


def require_gpu():
    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch sees no CUDA device")


# Calls in one replay of a short operation, so that the gaps between replays do not count.
MOST_REPEATS = 20
REPLAY_MICROSECONDS = 200


def microseconds(operation):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(5):
        operation()
    end.record()
    end.synchronize()
    return 200 * start.elapsed_time(end)


def sampler(operation, warm_up=20):
    """Captures `operation` and returns a function that takes n samples of it, in nanoseconds each."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            operation()
        repeats = max(1, min(MOST_REPEATS, int(REPLAY_MICROSECONDS / max(microseconds(operation), 1))))
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(repeats):
            operation()
    shield = torch.ones(SHIELD_BYTES // 4, device="cuda", dtype=torch.float32)

    def sample():
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # The device is busy with the sum and one untimed run while the host queues the timed one.
        shield.sum()
        graph.replay()
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return 1e6 * start.elapsed_time(end) / repeats

    for _ in range(warm_up):
        sample()
    return lambda samples: [sample() for _ in range(samples)]
