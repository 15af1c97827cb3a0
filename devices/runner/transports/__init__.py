"""Where the measuring process lives: on this machine (``local``)."""
