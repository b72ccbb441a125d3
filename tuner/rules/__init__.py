"""Static validity: what cannot work is found before anything is launched."""
