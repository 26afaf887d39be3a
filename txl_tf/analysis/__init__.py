"""What is found out about models: their work, their memory, what they attend to."""
