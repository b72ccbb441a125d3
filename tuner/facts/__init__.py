"""What the world is like: flags, models, images and presets, each as data with its source."""
