"""``python -m privmix``: the command line."""

from privmix.cli import main

if __name__ == "__main__":
    main()
