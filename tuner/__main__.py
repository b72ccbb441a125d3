"""`python -m tuner` is `llmtune`."""

from tuner.cli.main import main

if __name__ == "__main__":
    main()
