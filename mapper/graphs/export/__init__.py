"""A model as an ONNX file: traced by torch's own exporter, under the checkpoint's names, and checked before it is there."""
