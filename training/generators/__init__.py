"""Generated scenarios of nodes."""
