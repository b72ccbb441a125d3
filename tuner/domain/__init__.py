"""What things are: frozen records without effects. Nothing here knows an engine, a file or a clock."""
