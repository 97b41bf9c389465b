"""`python -m proxy` is `trimtab`."""

from proxy.cli import main

if __name__ == "__main__":
    main()
