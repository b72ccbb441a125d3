"""The space, what is ruled out of it, and what to try next. The only room that knows Optuna."""
