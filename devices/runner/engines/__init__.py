"""Inference engines that the runner knows."""
