# cmake -DSOURCE=FOLDER -DWORK=FOLDER -P architectures.cmake: which GPUs a build is for, with programs in the place of
# nvidia-smi.
file(MAKE_DIRECTORY "${WORK}/with" "${WORK}/without" "${WORK}/old" "${WORK}/mixed")
file(WRITE "${WORK}/with/nvidia-smi" "#!/bin/sh\nprintf '9.0\\n9.0\\n8.6\\n'\n")
file(WRITE "${WORK}/without/nvidia-smi" "#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
file(WRITE "${WORK}/old/nvidia-smi" "#!/bin/sh\nprintf '6.1\\n7.0\\n'\n")
file(WRITE "${WORK}/mixed/nvidia-smi" "#!/bin/sh\nprintf '6.1\\n9.0\\n12.0\\n'\n")
file(CHMOD "${WORK}/with/nvidia-smi" "${WORK}/without/nvidia-smi" "${WORK}/old/nvidia-smi"
  "${WORK}/mixed/nvidia-smi" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
include("${SOURCE}/cmake/cuda_architectures.cmake")

function(expect wanted folder expected)
  set(path "$ENV{PATH}")
  set(ENV{PATH} "${WORK}/${folder}:${path}")
  tandem_choose_gpus(chosen "${wanted}")
  set(ENV{PATH} "${path}")
  if(NOT "${chosen}" STREQUAL "${expected}")
    message(FATAL_ERROR "${wanted} ${folder} a GPU: expected ${expected}, got ${chosen}")
  endif()
endfunction()

set(all "75-real;80-real;86-real;89-real;90-real;100-real;120")
expect(AUTO with "90-real;86-real")
expect(AUTO without "${all}")
expect(AUTO old "${all}")
expect(AUTO mixed "90-real;120-real")
expect(ALL with "${all}")
expect("80;90" with "80;90")
