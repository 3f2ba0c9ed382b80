list(APPEND SLX_KERNELS_SOURCES
  experts/combine.cu
  experts/copies.cu
  experts/product.cpp
  experts/product_input_gradient.cu
  experts/product_plain.cu
  experts/product_swapped.cu
  experts/product_swiglu.cu
  experts/product_weight_gradient.cu
  experts/route_and_sort.cu
  experts/router.cu
  experts/router_balance.cu
  experts/sort.cu
  experts/swiglu_backward.cu)
