"""What is said in the words of the Open Inference Protocol."""
