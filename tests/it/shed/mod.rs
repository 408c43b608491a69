mod sensors;
