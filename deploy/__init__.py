"""What an operator needs in addition to the package: demo, installers, processes."""
