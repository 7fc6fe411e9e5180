"""What is in an ONNX file, and is all of it understood?"""
