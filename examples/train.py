#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a small GPT on a file of token numbers: batches that are in device memory already, checkpoints
that are written while training goes on, and a resume that continues with the very next batch.

  python examples/train.py tokens.bin --device cuda:0 --steps 1000 --save run.safetensors
  python examples/train.py tokens.bin --device cuda:0 --steps 2000 --save run.safetensors   # goes on

The file has numbers of 16 bits, as nanoGPT writes them; without one, some are made up.
"""
import argparse
import array
import json
import os
import random
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional

import headrace
import headrace.torch


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=2))
        if hasattr(functional, "scaled_dot_product_attention"):
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            score = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).masked_fill(later, float("-inf"))
            mixed = score.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.before(x))
        return x + self.shrink(functional.gelu(self.grow(self.between(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary, length, width, layers, heads):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, labels):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.last(self.blocks(self.token(tokens) + self.place(places)))
        return functional.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tokens", nargs="?", help="file of 16-bit token numbers (made up)")
    p.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    p.add_argument("--steps", type=int, default=100, help="in all, those before a resume included (100)")
    p.add_argument("--save", help="checkpoint: written every --every steps and at the end; read if it exists")
    p.add_argument("--every", type=int, default=50)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--length", type=int, default=128, help="tokens of a sample (128)")
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--vocabulary", type=int, default=50304)
    p.add_argument("--data", choices=("headrace", "dataloader"), default="headrace",
                   help="dataloader: PyTorch's own, for comparison")
    p.add_argument("--workers", type=int, default=0, help="of the DataLoader (0)")
    p.add_argument("--sync", action="store_true",
                   help="wait for the device before a batch is asked for: only data is waited for then")
    p.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    return p.parse_args()


def make_up(vocabulary):
    """A file in which the next token follows from the last one, mostly."""
    rng, token, tokens = random.Random(1), 0, array.array("H")
    for _ in range(200_000):
        token = (token * 5 + 7) % min(vocabulary, 97) if rng.random() < 0.9 else rng.randrange(min(vocabulary, 97))
        tokens.append(token)
    with tempfile.NamedTemporaryFile(suffix=".bin", delete=False) as f:
        tokens.tofile(f)
    return f.name


class Windows(torch.utils.data.Dataset):
    """What headrace.TokenDataset is, for PyTorch's DataLoader."""

    def __init__(self, path, length):
        import numpy

        self.tokens, self.length = numpy.memmap(path, dtype=numpy.uint16, mode="r"), length

    def __len__(self):
        return (len(self.tokens) - 1) // self.length

    def __getitem__(self, i):
        window = torch.from_numpy(self.tokens[i * self.length:(i + 1) * self.length + 1].astype("int64"))
        return {"input_ids": window[:-1], "labels": window[1:]}


def open_loader(args, path):
    if args.data == "headrace":
        data = headrace.TokenDataset(path, "u16", seq_len=args.length)
        device = "host" if args.device == "cpu" else args.device
        return headrace.Loader(data, args.batch, device, seed=1)
    return torch.utils.data.DataLoader(Windows(path, args.length), args.batch, shuffle=True, drop_last=True,
                                       num_workers=args.workers, pin_memory=args.device != "cpu",
                                       persistent_workers=args.workers > 0)


def endless(loader):
    while True:
        yield from loader


def take(batch, device):
    if isinstance(batch, headrace.Batch):
        return headrace.torch.tensors(batch, "input_ids", "labels").values()
    return [batch[name].to(device, non_blocking=True) for name in ("input_ids", "labels")]


def everything(model, optimizer):
    """Model and optimizer as one dictionary of tensors."""
    out = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        out.update({f"optimizer.{number}.{name}": t for name, t in state.items() if torch.is_tensor(t)})
    return out


def resume(path, model, optimizer, loader):
    """Load a checkpoint in place. Returns the steps that it has behind it."""
    for group in optimizer.param_groups:  # an optimizer has no state before its first step
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    headrace.torch.load_into(everything(model, optimizer), path)
    note = headrace.Checkpoint(path).metadata
    if isinstance(loader, headrace.Loader):
        loader.load_state_dict(json.loads(note["loader"]))
    return int(note["step"])


def wait_for(device):
    """For what the training has queued; the loader's own streams go on with the batches to come."""
    if device != "cpu":
        torch.cuda.current_stream(device).synchronize()


def main():
    args = arguments()
    path = args.tokens or make_up(args.vocabulary)
    torch.manual_seed(1)
    model = Gpt(args.vocabulary, args.length, args.width, args.layers, heads=4).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = open_loader(args, path)
    first = resume(args.save, model, optimizer, loader) if args.save and os.path.exists(args.save) else 0
    saving, waited, loss, losses = None, 0.0, None, []
    batches = endless(loader)
    began = time.perf_counter()
    for step in range(first + 1, args.steps + 1):
        if args.sync:
            wait_for(args.device)
        asked = time.perf_counter()
        tokens, labels = take(next(batches), args.device)
        if args.sync:
            wait_for(args.device)
        waited += time.perf_counter() - asked
        loss = model(tokens, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == first + 10:  # the first steps are about other things than data
            wait_for(args.device)
            began, waited = time.perf_counter(), 0.0
        if step % 10 == 0 or step == args.steps:
            losses.append(loss.item())
        if args.save and (step % args.every == 0 or step == args.steps):
            if saving:
                saving.result()
            note = {"step": str(step)}
            if isinstance(loader, headrace.Loader):
                note["loader"] = json.dumps(loader.state_dict())
            saving = headrace.torch.save_file_async(everything(model, optimizer), args.save, note)
    wait_for(args.device)
    took = time.perf_counter() - began
    if saving:
        saving.result()
    if not args.tokens:
        os.unlink(path)
    result = {"first": first, "steps": args.steps, "seconds": took, "loss": losses[-1] if losses else None,
              "first_loss": losses[0] if losses else None, "waiting_share": waited / took if took else 0.0,
              "step_seconds": took / max(1, args.steps - first - 10), "data": args.data,
              "workers": args.workers, "device": args.device}
    if isinstance(loader, headrace.Loader):
        result["waited_by_its_own_count"] = loader.info()["waited_seconds"]
    if args.json:
        print(json.dumps(result))
    else:
        print(f"steps {first + 1} to {args.steps} on {args.device}: loss {result['loss']:.3f}, "
              f"{result['step_seconds'] * 1e3:.2f} ms a step, waited for data "
              f"{result['waiting_share']:.2%} of the time")


if __name__ == "__main__":
    main()
