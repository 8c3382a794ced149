"""What an ONNX file says besides its weights: operations, read, run, named, and written as layers."""
