"""What follows from an event? Pure: no threads, no clock, no I/O, and no import from outside."""
