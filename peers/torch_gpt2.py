"""PyTorch as a peer of `gatework train`: steps of GPT-2 small, compiled, in bf16, with fused AdamW and SDPA.

Prints one JSON line: milliseconds of a step (median, p90) and tokens per second. A step is a forward and a backward
pass over BATCH windows of CONTEXT tokens, clipping to a norm of one, and an update. Weights and moments are f32, products
are bf16 under autocast. Tokens are uniform: only times are compared. The loss is read back after the last step alone.

  python3 peers/torch_gpt2.py [--batch 16] [--context 1024] [--steps 40] [--eager]
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, ROWS, WIDTH, LAYERS, HEADS = 50257, 50304, 768, 12, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.reads, self.mixes = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widens, self.narrows = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, context, _ = x.shape
        heads = self.reads(self.first(x)).view(batch, context, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.mixes(mixed.transpose(1, 2).reshape(batch, context, WIDTH))
        return x + self.narrows(F.gelu(self.widens(self.second(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, context):
        super().__init__()
        self.tokens, self.places = nn.Embedding(ROWS, WIDTH), nn.Embedding(context, WIDTH)
        self.blocks, self.last = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.last(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, ROWS), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--eager", action="store_true", help="do not compile")
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Gpt2(given.context).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    forward = model if given.eager else torch.compile(model)
    batches = [
        torch.randint(VOCABULARY, (given.batch, given.context + 1), device="cuda") for _ in range(4)
    ]

    def step(index):
        tokens = batches[index % len(batches)]
        with torch.autocast("cuda", torch.bfloat16):
            loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss

    started = time.perf_counter()
    first = step(0).item()
    compiled_seconds = time.perf_counter() - started
    for index in range(9):
        step(index)
    torch.cuda.synchronize()
    milliseconds = []
    for index in range(given.steps):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        loss = step(index)
        end.record()
        milliseconds.append((start, end))
    torch.cuda.synchronize()
    times = sorted(start.elapsed_time(end) for start, end in milliseconds)
    median = statistics.median(times)
    print(
        json.dumps(
            {
                "peer": "PyTorch",
                "version": torch.__version__,
                "device": torch.cuda.get_device_name(),
                "compiled": not given.eager,
                "tokens": given.batch * given.context,
                "steps": given.steps,
                "median_ms": median,
                "p90_ms": times[int(0.9 * (len(times) - 1))],
                "tokens_per_second": given.batch * given.context / median * 1e3,
                "first_loss": first,
                "last_loss": loss.item(),
                "peak_bytes": torch.cuda.max_memory_allocated(),
                "first_step_seconds": compiled_seconds,
            }
        )
    )


if __name__ == "__main__":
    main()
