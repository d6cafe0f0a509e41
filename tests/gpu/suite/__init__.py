"""What tests/gpu/run.sh runs: sections that check and time engines on a device, one JSON report.

Each section is a function of a Section, which it fills, and a Where. They know an Engine and
transformers' generate(), nothing of how servers run forwards: whatever serves a module on a device
behind Engine is what they check.
"""
