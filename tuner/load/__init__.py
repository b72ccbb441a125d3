"""Effects on servers: prompts, arrivals and the streaming client that sends and times them."""
