"""What people see: the command line, the terminal, figures."""
