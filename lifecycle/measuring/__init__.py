"""What does a model take on this machine, told by a child process?"""
