"""The commands of simulations of labs, and of stored scenarios."""
