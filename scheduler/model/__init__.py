"""The values that everything else passes around."""
