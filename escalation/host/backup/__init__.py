"""An installation in one file: made while it runs, checked whole before it is brought back."""
