"""The best inputs, found before the first experiment."""
