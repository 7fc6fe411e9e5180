"""How is a graph said in few operators, for one shape?"""
