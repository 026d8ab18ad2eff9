"""PyTorch as a peer of `foresight/statistics`, `foresight/update` and `foresight/gru`.

Prints one JSON line each: the median of device time, in microseconds, of calls inside a replayed CUDA graph.

* statistics: sum, squared length, least and largest number of every tensor in six arrays of all parameters of GPT-2 small,
  and the product of two of the arrays, by `_foreach` calls where there are any, else by a call a tensor.
* adamw: a step of `torch.optim.AdamW(fused=True, capturable=True)` over as many parameters.
* gru: 50 steps of `nn.GRU` (cuDNN) in f32 with TF32 allowed, as by default; five rows that share their weights, 70 inputs.

  python3 peers/torch_foresight.py
"""

import json
import statistics

import torch

from torch_timing import require_gpu, sampler

PARAMETERS, TENSORS, ARRAYS, SAMPLES = 124_439_808, 148, 6, 30


def report(operation, **sizes):
    def timed(call):
        times = sampler(call, warm_up=5)(SAMPLES)
        line = {"peer": "PyTorch", "version": torch.__version__, "operation": operation, **sizes}
        print(json.dumps({**line, "median_us": statistics.median(times) / 1e3}), flush=True)

    return timed


def tensors():
    """Lengths that grow, as the workload has them."""
    places = [PARAMETERS * number * number // (TENSORS * TENSORS) for number in range(TENSORS + 1)]
    return [torch.randn(end - start, device="cuda") for start, end in zip(places, places[1:]) if end > start]


def of_statistics():
    arrays = [tensors() for _ in range(ARRAYS)]
    found = {}

    def chain():
        for number, array in enumerate(arrays):
            found["norms", number] = torch._foreach_norm(array)
            found["most", number] = torch._foreach_max(array)
            found["least", number] = torch._foreach_max(torch._foreach_neg(array))
            found["sums", number] = [tensor.sum() for tensor in array]
        along = torch._foreach_mul(arrays[2], arrays[3])
        found["along"] = [tensor.sum() for tensor in along]

    report("statistics", parameters=PARAMETERS, tensors=len(arrays[0]), arrays=ARRAYS)(chain)


def of_adamw():
    weights = [torch.nn.Parameter(tensor) for tensor in tensors()]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    optimiser = torch.optim.AdamW(weights, lr=1e-3, weight_decay=0.1, fused=True, capturable=True)
    report("adamw", parameters=PARAMETERS, tensors=len(weights))(optimiser.step)


def of_gru():
    for hidden in (64, 256, 512, 1024):
        unit = torch.nn.GRU(70, hidden).cuda()
        inputs = torch.randn(50, 5, 70, device="cuda")
        with torch.no_grad():
            report("gru", hidden=hidden, steps=50, rows=5)(lambda: unit(inputs))


def main():
    require_gpu()
    torch.manual_seed(0)
    of_gru()
    of_adamw()
    of_statistics()


if __name__ == "__main__":
    main()
