"""Experiment trackers that follow a run: TensorBoard, MLflow, Weights & Biases. They may fail, hang or be away."""
