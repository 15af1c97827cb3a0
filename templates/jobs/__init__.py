"""Templates of Nomad jobs."""
