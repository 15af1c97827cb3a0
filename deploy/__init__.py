"""What an operator needs beside the package: demo, installers, processes."""
