"""What the graph of an ONNX model says of its weights and its layers: names, arrangements, facts."""
