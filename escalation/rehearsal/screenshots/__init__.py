"""The pictures of the README, made from drills in a scratch installation."""
