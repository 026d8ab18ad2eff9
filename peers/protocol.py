"""The peers' side of the protocol: JSON lines with the lab, on standard input and output.

A peer says first who it is, or why it cannot work here. Then it answers requests until its input ends:
{"operation": "saxpy", "shape": {"n": 1024}, "samples": 20} with {"samples_ns": [...]} or {"error": "..."}.
"""

import json
import os
import sys

PROTOCOL = 1


def require_shared_mask(shape):
    """Refuses causal attention of unequal lengths: frameworks align the mask to the first key, Gatework to the last."""
    if shape.get("causal", 0) and shape["queries"] != shape["keys"]:
        raise RuntimeError("its causal mask starts at the first key, which is another problem for unequal lengths")


def serve(peer, load):
    """Speaks for `peer`. `load()` returns (versions, device name, {operation: prepare}) or raises.

    `prepare(shape)` puts inputs on the device and returns a function that takes n samples, in nanoseconds each.
    """
    # Libraries print what they like: the lab must hear nothing but answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(message):
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        versions, device, operations = load()
    except Exception as error:  # a missing package, a missing GPU, a broken installation
        answer({"protocol": PROTOCOL, "peer": peer, "unavailable": f"{type(error).__name__}: {error}"})
        return
    answer(
        {
            "protocol": PROTOCOL,
            "peer": peer,
            "versions": versions,
            "device": device,
            "operations": sorted(operations),
        }
    )
    prepared = {}
    for line in sys.stdin:
        try:
            request = json.loads(line)
            key = (request["operation"], tuple(sorted(request["shape"].items())))
            if key not in prepared:
                # One at a time: the inputs of the last operation make room for those of the next.
                prepared.clear()
                prepared[key] = operations[request["operation"]](request["shape"])
            answer({"samples_ns": prepared[key](request["samples"])})
        except Exception as error:
            prepared.clear()
            answer({"error": f"{type(error).__name__}: {error}"})
