"""Models that were made elsewhere, served as they are: transformers folders, ONNX files, exported torch programs."""
