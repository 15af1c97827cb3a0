"""``python -m edgeyard`` and the console script."""


def main() -> None:
    """Run the command line."""
    from edgeyard.benchmark_api.cli import app

    app()


if __name__ == "__main__":
    main()
