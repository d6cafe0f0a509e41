"""What the end-to-end benchmarks share: machine facts, inputs, what they compare with."""
