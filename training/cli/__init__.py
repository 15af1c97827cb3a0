"""The commands of the test environment, of traces and of trainers."""
