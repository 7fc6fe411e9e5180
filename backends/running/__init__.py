"""How do many texts run through one loaded model, and end in time?"""
