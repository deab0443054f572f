return listed()
