list(APPEND SLX_KERNELS_SOURCES
  policy_loss/policy_loss.cu)
