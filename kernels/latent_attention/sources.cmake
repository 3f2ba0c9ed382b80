list(APPEND SLX_KERNELS_SOURCES
  latent_attention/rows.cu
  latent_attention/cluster_rows.cu
  latent_attention/few_rows.cu
  latent_attention/latent_attention.cu
  latent_attention/listed_rows.cu
  latent_attention/merge.cu)
