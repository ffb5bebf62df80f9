"""Writes update_golden.inc: steps of torch.optim in f32, as hex bits.

ATEN_CPU_CAPABILITY=default python3 update_golden.py > update_golden.inc

The default kernels round after each operation; those of AVX2 and AVX-512 fuse multiply and add.
"""

import struct

import torch

ELEMENTS = 12
STEPS = 3
CASES = (
    ("kSgd", dict(lr=0.1), torch.optim.SGD),
    ("kNesterov", dict(lr=0.7, momentum=0.9, nesterov=True), torch.optim.SGD),
    ("kAdamW", dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1), torch.optim.AdamW),
    ("kAdamW", dict(lr=1e-2, betas=(0.3, 0.999), eps=1e-6, weight_decay=0.0), torch.optim.AdamW),
)


def scales(*factors):
    """Different magnitudes, among them one whose square is subnormal."""
    return torch.tensor(factors).repeat(ELEMENTS // len(factors))


def bits(tensor):
    return ", ".join(f"0x{struct.unpack('<I', struct.pack('<f', x))[0]:08x}" for x in tensor.tolist())


def main():
    torch.manual_seed(22)
    print(f"// Written by update_golden.py with torch {torch.__version__.split('+')[0]}.")
    for kind, options, optimizer_class in CASES:
        parameters = torch.nn.Parameter(torch.randn(ELEMENTS) * scales(1.0, 1e-3, 30.0, 1.0))
        optimizer = optimizer_class([parameters], foreach=False, **options)
        beta1, beta2 = options.get("betas", (0, 0))
        rule = (options["lr"], options.get("momentum", 0), beta1, beta2, options.get("eps", 0), options.get("weight_decay", 0))
        print(f"{{{{RuleKind::{kind}, {', '.join(repr(x) for x in rule)}}},\n {{{bits(parameters.detach())}}},\n {{", end="")
        separator = ""
        for _ in range(STEPS):
            parameters.grad = torch.randn(ELEMENTS) * scales(1.0, 1e3, 1e-4, 1e-20)
            print(f"{separator}{{{{{bits(parameters.grad)}}},", end="")
            optimizer.step()
            state = optimizer.state[parameters]
            arrays = [parameters.detach()] + [state[name] for name in ("momentum_buffer", "exp_avg", "exp_avg_sq") if state.get(name) is not None]
            print("\n   {" + ",\n    ".join(f"{{{bits(a)}}}" for a in arrays) + "}}", end="")
            separator = ",\n  "
        print("}},")


if __name__ == "__main__":
    main()
