"""Tables as text, beside the paper's printed values. Nothing here needs PyTorch."""
