"""The forms in which a policy leaves nestbed, by name."""

from nestbed.numerics.registry import Entry, Registry

FORMATS = Registry(
    "format",
    Entry("c", "nestbed.exports.c", "one C99 file without dependencies or malloc, for a microcontroller"),
    Entry("onnx", "nestbed.exports.onnx_graph", "a graph that onnxruntime and others run, from many languages"),
    Entry("jax", "nestbed.exports.stablehlo", "StableHLO, a program that plain jax runs"),
    Entry("csv", "nestbed.exports.sequence", "the designs in order, of a plan or a signal"),
)
"""Each module has `files`, which returns them by name, `check`, a few steps to compare with, and `readme`."""
